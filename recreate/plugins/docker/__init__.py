"""Sandboxes that are containers of docker or podman, on the host's files or an image's."""
