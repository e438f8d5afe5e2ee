"""What PyTorch does on a rank when it carries a layout out, without importing torch: messages, peak
memory, CPU seconds.
"""
