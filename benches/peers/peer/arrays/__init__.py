"""Loaders of arrays, as `benches/peers/run --au` compares them: peers as those of pictures, whose batches are dicts of arrays."""
