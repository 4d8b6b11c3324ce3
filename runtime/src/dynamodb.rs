//! The client of DynamoDB as the programs use it: who it speaks to, how long it waits, and why it was not done.
