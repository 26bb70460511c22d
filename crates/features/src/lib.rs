//! No code: `Cargo.toml` gives dependencies the same features in every selection of packages.
