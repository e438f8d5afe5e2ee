"""Any PyTorch model counted by one run on tensors that have shapes and no numbers: what no table of
families holds.
"""
