//! The store behind the registry: the suite that each store passes, and what the registry does while one fails.

mod double;
mod outages;
mod restarts;
mod suite;

mod memory {
    use mcs_registry::store::Memory;

    super::suite::passes!(Memory::default());
}

mod dynamodb {
    use mcs_registry::store::DynamoDb;
    use mcs_runtime::clock::SystemClock;
    use mcs_runtime::dynamodb::double::Double;

    use super::*;

    async fn store(double: &Double) -> DynamoDb {
        DynamoDb::new(double.client().await, std::sync::Arc::new(SystemClock))
    }

    suite::passes!(store(&Double::start().await).await);
}
