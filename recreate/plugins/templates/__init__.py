"""Working examples of a domain of rows: recreate init --domain NAME --template KIND."""
