//! The command line: runs the real program and compares its texts.

mod audit;
mod balance;
mod certificates;
mod compare;
mod dev;
mod job_init;
mod jobs;
mod loose_files;
mod manual;
mod output;
mod parts;
mod profile;
mod redaction;
mod replaced;
mod runs;
mod status;
mod tokens;
mod top;
mod warm;
