"""Answer searches of a gallery over HTTP: FastAPI, one model, requests embedded together, limits on everything."""
