//! Datasets that are made and checked: views, and the files of all formats, with golden files, hostile bytes and damage.

mod array_record;
mod corpora;
mod counting;
mod dataset;
mod dots;
mod files;
mod files_listing;
mod fit;
mod hidden;
mod hub;
mod in_memory;
mod look;
mod mds;
mod megatron;
mod megatron_lies;
mod parquet;
mod parquet_classes;
mod parquet_footers;
mod parquet_numbers;
mod report;
mod sequences;
mod splits;
mod tar;
mod tfrecord;
mod token_files;
mod view;
