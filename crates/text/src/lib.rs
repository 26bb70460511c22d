//! From text and chats to tokens.
