//! Client::connect(rank, world): batches for a trainer
