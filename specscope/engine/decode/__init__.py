"""The decode loop: scheduler, drafters, model runner, sampler, verification, and timing."""
