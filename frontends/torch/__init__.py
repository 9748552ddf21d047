"""PyTorch: programs of torch.export to graphs."""
