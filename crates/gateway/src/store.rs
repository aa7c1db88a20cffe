//! The store that a URL means.

use onlyonce_engine::{EngineError, Runtime as _, SecretError, TokioRuntime};
use onlyonce_store::tiered::{MemoryCache, TieredOptions};
use onlyonce_store::{BoxStore, ListStore, MemoryStore, Store, Tiered};
use onlyonce_store_dynamodb::{DynamoOptions, DynamoStore};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};
use onlyonce_store_postgres::{Migrated, PostgresOptions, PostgresStore};
use onlyonce_store_redis::{RedisCache, RedisOptions, RedisStore};

use crate::config::{Cache, CacheUrl, StoreUrl};

/// An open store, and what its operator should know about it.
pub(crate) struct Opened {
    pub(crate) store: BoxStore,
    /// Promises that its settings do not allow it to give.
    pub(crate) warnings: Vec<String>,
}

impl Opened {
    fn quietly(store: BoxStore) -> Self {
        Self {
            store,
            warnings: Vec::new(),
        }
    }
}

/// Opens the store. `embedded` says how, if it is the embedded one; `cache`, what to keep of a
/// shared one.
///
/// # Errors
/// With the setting to change.
pub(crate) async fn open(
    url: &StoreUrl,
    embedded: &EmbeddedOptions,
    cache: &Cache,
) -> Result<Opened, String> {
    match url {
        StoreUrl::Memory => Ok(Opened {
            store: BoxStore::new(MemoryStore::new()),
            warnings: vec!["the memory store forgets every key when this process ends".into()],
        }),
        StoreUrl::Embedded(_) => {
            let store = EmbeddedStore::open(embedded).map_err(named)?;
            Ok(Opened::quietly(BoxStore::new(store)))
        }
        StoreUrl::Postgres(url) => {
            let options = PostgresOptions::from_url(url.reveal()).map_err(named)?;
            let store = PostgresStore::open(&options).await.map_err(named)?;
            let warnings = store.warnings();
            Ok(Opened {
                store: cached(store, cache).await?,
                warnings,
            })
        }
        StoreUrl::Redis(url) => {
            let options = RedisOptions::from_url(url.reveal()).map_err(named)?;
            let store = RedisStore::open(&options).await.map_err(named)?;
            let warnings = store.warnings();
            Ok(Opened {
                store: cached(store, cache).await?,
                warnings,
            })
        }
        StoreUrl::Dynamo(url) => {
            let options = DynamoOptions::from_url(url.reveal()).map_err(named)?;
            let store = DynamoStore::open(&options).await.map_err(named)?;
            Ok(Opened::quietly(cached(store, cache).await?))
        }
    }
}

/// Makes or updates what the store needs on its server, and says what was done.
///
/// # Errors
/// With the setting to change.
pub(crate) async fn migrate(url: &StoreUrl) -> Result<String, String> {
    match url {
        StoreUrl::Postgres(url) => {
            let options = PostgresOptions::from_url(url.reveal()).map_err(named)?;
            let migrated = onlyonce_store_postgres::migrate(&options).await;
            let Migrated { from, to } = migrated.map_err(named)?;
            if from == to {
                return Ok(format!("the schema is at version {to} already"));
            }
            Ok(format!("the schema went from version {from} to {to}"))
        }
        StoreUrl::Dynamo(url) => {
            let options = DynamoOptions::from_url(url.reveal()).map_err(named)?;
            let migrated = onlyonce_store_dynamodb::migrate(&options).await;
            Ok(match migrated.map_err(named)? {
                onlyonce_store_dynamodb::Migrated::Created => "the table was made".into(),
                onlyonce_store_dynamodb::Migrated::Unchanged => "the table is there already".into(),
            })
        }
        StoreUrl::Embedded(_) | StoreUrl::Memory | StoreUrl::Redis(_) => {
            Ok("this store needs no migration".into())
        }
    }
}

async fn cached(store: impl Store + ListStore, cache: &Cache) -> Result<BoxStore, String> {
    let mut options = TieredOptions::default();
    options.age_max = cache.age_max;
    if let Some(CacheUrl(url)) = &cache.redis {
        let of_cache = |error| format!("cache.redis: {error}");
        let server = RedisOptions::from_url(url.reveal()).map_err(of_cache)?;
        // What the cache gives must come from a gateway on the same store.
        let secret = store.secret(random_bytes()).await.map_err(named)?;
        let cache = RedisCache::new(&server, &secret, cache.age_max).map_err(of_cache)?;
        return Ok(BoxStore::new(Tiered::new(store, cache, options)));
    }
    if cache.bytes == 0 {
        return Ok(BoxStore::new(store));
    }
    let cache = MemoryCache::new(cache.bytes);
    Ok(BoxStore::new(Tiered::new(store, cache, options)))
}

/// Why no engine runs on a store, with the setting to change. `has_file`: whether the hashing secret
/// is in a file.
pub(crate) fn refused(error: &EngineError, has_file: bool) -> String {
    let EngineError::Secret(reason) = error else {
        return named(error);
    };
    match reason {
        SecretError::Other if has_file => {
            "secret.previous_file: the store's keys were made with another secret, and would not be \
             found: give that one here, or as `file` to go on with it"
                .to_owned()
        }
        SecretError::Other => "secret.file: the store's keys were made with another secret than \
                               its own, and would not be found: give that one"
            .to_owned(),
        SecretError::Dropped { left } => format!(
            "secret.previous_file: keys that were made with the secret before this one may be \
             stored for another {} h, and would not be found: give it until then",
            left.as_secs().div_ceil(60 * 60)
        ),
        SecretError::Lost | SecretError::Changed => named(reason),
        SecretError::Unmarked => "secret.previous_file: the store has keys, and does not tell \
                                  which secret they were made with: give that one, also if it is \
                                  the same as `file`"
            .to_owned(),
    }
}

/// A candidate for a store's secret, of which the first is kept.
pub(crate) fn random_bytes() -> [u8; 32] {
    TokioRuntime::current().entropy()
}

fn named(error: impl std::fmt::Display) -> String {
    format!("store: {error}")
}
