"""The OpenAI-compatible server around the engine; needs the extra `server`."""
