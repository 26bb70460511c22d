//! What a GPU is needed to see. The program of this package runs it on a real one; the ordinary tests run the same on a
//! stand-in for the driver, where figures mean nothing and correctness everything.

pub mod checks;
pub mod feed;
pub mod figures;
pub mod raw;
