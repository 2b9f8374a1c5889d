"""Hardware facts as YAML: GPUs, host CPUs, PCIe switches. Read by :mod:`pciesim.formats.catalogue`."""
