"""The ledger's migrations; one file each below ``versions``, never changed once released."""
