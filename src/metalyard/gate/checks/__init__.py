"""The checks that come with the package: one file a subsystem. Each says where its figures are from."""
