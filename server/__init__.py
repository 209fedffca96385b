"""The parameter server: gathering, decoding, aggregation, recording."""
