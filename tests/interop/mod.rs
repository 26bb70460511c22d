//! Interoperability with other software: the Python packages `webdataset` and `pillow`, the S3 protocol, and the Hugging Face Hub's.

mod class_labels;
mod crop_ready;
mod elsewhere;
mod everyday;
mod examples;
mod foreign;
mod hub;
mod large_groups;
mod loose;
mod mds;
mod other_readers;
mod own_data;
mod parquet;
mod quality;
mod quarantine;
mod s3_job;
mod s3_tokens;
mod tars;
mod trained;
mod webdataset;
