//! How the suite opens a store.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;

use onlyonce_store::{BoxStore, ListStore, Store};
use tempfile::TempDir;

use super::Handle;

/// What the suite needs to know about a backend.
///
/// Three ways to have one, from the shortest:
///
/// - a store in a folder is its opening function, `async fn(PathBuf) -> impl Store + ListStore`.
///   Such a function is a harness, of a store that is durable and not shared;
/// - a store that forgets everything is [`volatile(make)`](volatile);
/// - anything else, such as a server that must be started first, implements this trait.
///
/// What a harness declares is checked against the store's
/// [profile](onlyonce_store::StoreProfile). A case that does not apply says so in its output,
/// and fails if the profile promises what the harness does not.
pub trait Harness: Clone + Send + Sync + 'static {
    /// Where one case's data lives: a folder, a schema, a key prefix. Dropping it may clean up.
    type Place;

    /// The store.
    type Store: Store + ListStore;

    /// Whether what was acknowledged is there again when the place is opened anew.
    const DURABLE: bool;

    /// Whether a place may be opened while another handle to it is open.
    const SHARED: bool;

    /// The largest response body that the store promises to keep. At least 1 MiB, the default
    /// limit of a route. Larger ones must be refused whole.
    const BODY_BYTES_MAX: usize = 4 << 20;

    /// A place that nothing was ever written to.
    fn place(&self) -> impl Future<Output = Self::Place>;

    /// Opens the store at a place: for the first time, after the former handle was
    /// [closed](Self::close), or beside it if the store is shared.
    fn open(&self, place: &Self::Place) -> impl Future<Output = Self::Store>;

    /// Gives a handle back. Returns when the place may be opened again.
    fn close(&self, store: Self::Store) -> impl Future<Output = ()> {
        async { drop(store) }
    }
}

/// A folder that is removed with its contents.
#[derive(Debug)]
pub struct Folder(TempDir);

impl<F, Opening, S> Harness for F
where
    F: Fn(PathBuf) -> Opening + Clone + Send + Sync + 'static,
    Opening: Future<Output = S>,
    S: Store + ListStore,
{
    type Place = Folder;
    type Store = S;
    const DURABLE: bool = true;
    const SHARED: bool = false;

    async fn place(&self) -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    async fn open(&self, place: &Folder) -> S {
        self(place.0.path().to_path_buf()).await
    }
}

/// A store that forgets everything when it is dropped; see [`volatile`].
#[derive(Debug, Clone)]
pub struct Volatile<F>(F);

/// The harness of a store that lives in memory: `store_suite!(volatile(MemoryStore::new))`.
/// The durability cases are reported as not applicable.
pub fn volatile<F, S>(make: F) -> Volatile<F>
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Store + ListStore,
{
    Volatile(make)
}

impl<F, S> Harness for Volatile<F>
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Store + ListStore,
{
    type Place = ();
    type Store = S;
    const DURABLE: bool = false;
    const SHARED: bool = false;

    async fn place(&self) {}

    async fn open(&self, (): &()) -> S {
        (self.0)()
    }
}

/// Another harness's store behind a [`BoxStore`]; see [`boxed`].
#[derive(Debug, Clone)]
pub struct Boxed<H>(H);

/// The same store behind a [`BoxStore`], which must change nothing. A handle is closed by
/// dropping it: what the harness would do beyond that is left out.
pub fn boxed<H: Harness>(harness: H) -> Boxed<H> {
    Boxed(harness)
}

impl<H: Harness> Harness for Boxed<H> {
    type Place = H::Place;
    type Store = BoxStore;
    const DURABLE: bool = H::DURABLE;
    const SHARED: bool = H::SHARED;
    const BODY_BYTES_MAX: usize = H::BODY_BYTES_MAX;

    async fn place(&self) -> H::Place {
        self.0.place().await
    }

    async fn open(&self, place: &H::Place) -> BoxStore {
        BoxStore::new(self.0.open(place).await)
    }
}

/// One case's place, and the harness that opens it.
pub struct Setup<H: Harness> {
    harness: H,
    place: H::Place,
}

impl<H: Harness> Setup<H> {
    pub(super) async fn new(harness: H) -> Self {
        let place = harness.place().await;
        Self { harness, place }
    }

    /// Opens the case's store: its only handle, unless the store is shared.
    pub async fn open(&self) -> Handle<H::Store> {
        Handle::new(self.harness.open(&self.place).await)
    }

    /// Closes the store and opens it again.
    pub async fn reopen(&self, handle: Handle<H::Store>) -> Handle<H::Store> {
        self.harness.close(handle.into_store()).await;
        self.open().await
    }
}

impl<H: Harness> fmt::Debug for Setup<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").finish_non_exhaustive()
    }
}
