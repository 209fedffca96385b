"""What is learned: data, its partition over the nodes, the model, and training."""
