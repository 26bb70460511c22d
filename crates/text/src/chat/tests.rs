//! Tests of chats.
