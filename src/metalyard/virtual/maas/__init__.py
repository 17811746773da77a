"""An emulated MAAS region: the API, the status machine and the power driver of a real 3.7 one."""
