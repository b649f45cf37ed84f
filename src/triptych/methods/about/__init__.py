"""What is said of each method: idea, sources, ablation rows, and how paper, release and this library differ."""
