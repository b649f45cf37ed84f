"""Training: triplets to a run folder that can be resumed, evaluated and searched with."""
