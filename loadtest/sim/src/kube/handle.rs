//! Starting the simulator, and steering it from Rust.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::api::ApiServer;
use super::config::KubeSimConfig;
use super::{disruption, server};

/// Starts simulated API servers.
#[derive(Debug, Clone, Copy)]
pub struct KubeSim;

impl KubeSim {
    /// Listens and serves until the handle is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(config: KubeSimConfig) -> io::Result<KubeSimHandle> {
        let listener = TcpListener::bind(config.listen).await?;
        let address = listener.local_addr()?;
        let api = Arc::new(ApiServer::new(config));
        let server = tokio::spawn({
            let api = Arc::clone(&api);
            async move {
                server::accept(listener, api).await;
            }
        });
        let keeper = tokio::spawn({
            let api = Arc::clone(&api);
            async move {
                disruption::keep(api).await;
            }
        });
        Ok(KubeSimHandle {
            api,
            address,
            tasks: [server, keeper],
        })
    }
}

/// A running simulator. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct KubeSimHandle {
    api: Arc<ApiServer>,
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl KubeSimHandle {
    /// The URL of the API.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new client. Nobody is refused anything, so there is only one kind.
    ///
    /// # Errors
    /// When no client can be built.
    pub fn client(&self) -> kube::Result<Client> {
        let url = http::Uri::try_from(self.endpoint()).map_err(http::Error::from);
        Client::try_from(Config::new(url.map_err(kube::Error::HttpError)?))
    }

    /// A kubeconfig for this server; as YAML it is what kubectl reads.
    #[must_use]
    pub fn kubeconfig(&self) -> Kubeconfig {
        const NAME: &str = "simulated";
        Kubeconfig {
            clusters: vec![NamedCluster {
                name: NAME.to_owned(),
                cluster: Some(Cluster {
                    server: Some(self.endpoint()),
                    ..Cluster::default()
                }),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: NAME.to_owned(),
                auth_info: Some(AuthInfo::default()),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: NAME.to_owned(),
                context: Some(Context {
                    cluster: NAME.to_owned(),
                    user: Some(NAME.to_owned()),
                    ..Context::default()
                }),
                ..NamedContext::default()
            }],
            current_context: Some(NAME.to_owned()),
            ..Kubeconfig::default()
        }
    }

    /// Ends every watch; clients see their streams close.
    pub fn cut_watches(&self) {
        self.api.store.cut_watches();
    }

    /// Forgets all history: watches end, and cannot be resumed from any version seen so far
    /// (410 Gone).
    pub fn compact(&self) {
        self.api.store.expire_history();
    }

    /// Holds every request back for so long; zero ends it.
    pub fn set_delay(&self, delay: Duration) {
        self.api.set_delay(delay);
    }

    /// How many watchers were cut off because they read too slowly.
    #[must_use]
    pub fn slow_watchers(&self) -> u64 {
        self.api.store.slow_watchers()
    }
}

impl Drop for KubeSimHandle {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
