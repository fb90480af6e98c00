"""What a plug-in is written against: records, errors, ports, the registry. It imports nothing of
ours."""
