//! Writes a folder of class folders with realistic JPEGs, for a first try or a benchmark:
//! `cargo run --release --example pictures -- FOLDER COUNT`.

use std::path::PathBuf;

use clap::Parser;
use spdl_cluster::pictures::Pictures;

/// Writes realistic JPEGs, made of the bundled photographs.
#[derive(Parser)]
struct Args {
    /// Where the class folders go.
    folder: PathBuf,
    /// How many pictures; each is some 107 KB.
    count: u64,
    /// Another seed, other pictures.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    Pictures::new().write_image_folder(&args.folder, args.count, args.seed, |_| {})?;
    println!("{} pictures in {}", args.count, args.folder.display());
    Ok(())
}
