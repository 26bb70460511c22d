//! From text and chats to tokens.

pub mod chat;
