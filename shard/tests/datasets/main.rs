//! Datasets: stores, manifests, indexes, views and the files of all formats, with golden files, hostile bytes and damage.

mod array_record;
mod counting;
mod credentials;
mod dataset;
mod dots;
mod examples;
mod files;
mod files_listing;
mod hidden;
mod hub;
mod index;
mod manifest;
mod mds;
mod parquet;
mod parquet_footers;
mod parquet_numbers;
mod report;
mod splits;
mod store;
mod tar;
mod tfrecord;
mod tls;
mod view;
