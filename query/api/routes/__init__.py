"""The query service's routes, one file a resource."""
