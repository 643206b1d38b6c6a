//! The HTTP side: connections, and answers in the form of the API. Plain HTTP/1.1 on loopback.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::api::{ApiServer, Reply};
use super::error::ApiError;
use super::object::to_bytes;
use super::request::{Call, Target};
use super::{discovery, openapi, watch};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Connections served at the same time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4_096;

/// Accepts connections until the task is dropped.
pub(crate) async fn accept(listener: TcpListener, server: Arc<ApiServer>) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            // Nobody closes the semaphore.
            continue;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = Arc::clone(&server);
                connections.spawn(async move {
                    serve(stream, server).await;
                    drop(permit);
                });
            }
            // Out of file handles: others will be closed.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, server: Arc<ApiServer>) {
    // Small answers must not wait for the client's acknowledgements.
    let _slower_without = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(answer(server, request).await) }
    });
    let result = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer(server: Arc<ApiServer>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, server.config.body_max).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            let max = server.config.body_max;
            return refuse(&ApiError::request_too_large(format!("limit is {max}")));
        }
    };
    let delay = server.delay();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    match route(&server, &head, body) {
        Ok(reply) => send(server, reply),
        Err(error) => refuse(&error),
    }
}

fn route(server: &ApiServer, head: &Parts, body: Bytes) -> Result<Reply, ApiError> {
    let path = head.uri.path();
    if let Some(target) = Target::parse(path) {
        let call = Call::new(&server.registry(), target, head, body)?;
        return server.handle(&call);
    }
    if head.method != Method::GET {
        return Err(ApiError::no_such_path());
    }
    match path.trim_end_matches('/') {
        "/healthz" | "/livez" | "/readyz" => {
            let ok = Reply::bytes(StatusCode::OK, Bytes::from_static(b"ok"));
            Ok(ok.with_type("text/plain; charset=utf-8"))
        }
        "/version" => Ok(Reply::json(
            StatusCode::OK,
            &discovery::version(&server.config.version),
        )),
        path if path.starts_with("/openapi/") => openapi::answer(server, path),
        path => discovery::answer(server, path, head),
    }
}

fn send(server: Arc<ApiServer>, reply: Reply) -> Response<Body> {
    match reply {
        Reply::Document {
            code,
            body,
            content_type,
            warnings,
        } => {
            let mut response = respond(code, body, content_type);
            for text in warnings {
                let quoted = text.replace(['\\', '"'], "'");
                if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                    response.headers_mut().append(WARNING, value);
                }
            }
            response
        }
        Reply::Watch(watch) => {
            let lines = watch::lines(server, *watch);
            let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
            let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
            let content_type = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
    }
}

fn refuse(error: &ApiError) -> Response<Body> {
    let mut response = respond(error.code, to_bytes(&error.to_status()), "application/json");
    if error.details.retry_after_seconds > 0 {
        let seconds = HeaderValue::from(error.details.retry_after_seconds);
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn respond(code: StatusCode, body: Bytes, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
