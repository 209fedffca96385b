"""What nodes, server and launcher share: the field, the code, the channel, the wire format, the configuration and the tasks."""
