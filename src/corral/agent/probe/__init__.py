"""Finding the GPUs of this machine: one file per vendor behind one protocol.

Vendor libraries run in processes of their own (`python -m corral.agent.probe VENDOR`).
Nothing in this room needs more than psutil and, for NVIDIA, nvidia-ml-py.
"""
