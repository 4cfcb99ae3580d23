"""How turns get in: the event, the stream and the clients that append to it."""
