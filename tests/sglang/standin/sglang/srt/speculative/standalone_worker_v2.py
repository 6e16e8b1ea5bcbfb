"""A draft model of its own: all is inherited."""

from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2


class StandaloneDraftWorker(EagleDraftWorker):
    pass


class StandaloneWorkerV2(EAGLEWorkerV2):
    drafter = StandaloneDraftWorker
