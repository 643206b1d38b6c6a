//! The HTTP side: which service a request is for, and answers in its protocol's form.
//!
//! One port serves all services. JSON services name themselves in `X-Amz-Target`, Query
//! services in `Version`, EKS in the path. Connections are plain HTTP/1.1 on loopback; a
//! scripted fault can drop one without an answer.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::error::{ApiError, Service};
use super::fault::Verdict;
use super::query::Params;
use super::{Sim, control, ec2, iam, json, sqs};

/// Bytes of a request's body.
const BODY_MAX: usize = 1 << 20;
/// Connections served at the same time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4_096;

/// The connection is to be dropped without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost on purpose")]
struct Lost;

/// Accepts connections until the task is dropped.
pub(crate) async fn accept(listener: TcpListener, sim: Arc<Sim>) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            // Nobody closes the semaphore.
            continue;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let sim = sim.clone();
                connections.spawn(async move {
                    serve(stream, sim).await;
                    drop(permit);
                });
            }
            // Out of file handles: others will be closed.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, sim: Arc<Sim>) {
    // Small answers must not wait for the client's acknowledgements.
    let _slower_without = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let sim = sim.clone();
        async move { answer(&sim, request).await }
    });
    let result = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended");
    }
}

/// A request's service, action and input.
struct Recognised {
    service: Service,
    action: String,
    input: Input,
}

enum Input {
    Query(Params),
    Json(Value),
    Path(String),
}

async fn answer(sim: &Sim, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Lost> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            let error = ApiError::new(
                "InvalidInput",
                "The request failed because the payload for the body of the request is too large.",
            );
            return Ok(refuse(Service::Ec2, &error, "-"));
        }
    };
    if let Some(path) = head.uri.path().strip_prefix("/_sim/") {
        let (status, value) = control::answer(sim, &head.method, path, &body);
        return Ok(respond(status, "application/json", value.to_string()));
    }
    let request_id = sim.world().message_ids.uuid();
    let Recognised {
        service,
        action,
        input,
    } = match recognise(&head, &body) {
        Ok(recognised) => recognised,
        Err((service, error)) => return Ok(refuse(service, &error, &request_id)),
    };
    let latency = sim.faults().latency(service, &action);
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let account = &sim.config().account;
    let verdict = sim.faults().judge(service, &action, account);
    let outcome = match verdict {
        Verdict::Reset => return Err(Lost),
        Verdict::Refuse(error) => Err(error),
        Verdict::Proceed => act(sim, service, &action, input, &request_id).await,
        Verdict::LoseAnswer => {
            let outcome = act(sim, service, &action, input, &request_id).await;
            sim.faults().count(service, &action, outcome.as_ref().err());
            return Err(Lost);
        }
    };
    sim.faults().count(service, &action, outcome.as_ref().err());
    Ok(match outcome {
        Ok(body) => respond(200, content_type(service), body),
        Err(error) => refuse(service, &error, &request_id),
    })
}

fn recognise(head: &http::request::Parts, body: &[u8]) -> Result<Recognised, (Service, ApiError)> {
    if let Some(target) = head
        .headers
        .get("x-amz-target")
        .and_then(|value| value.to_str().ok())
    {
        return recognise_json(target, body);
    }
    let path = head.uri.path();
    if head.method == Method::GET
        && let Some(cluster) = path
            .strip_prefix("/clusters/")
            .filter(|name| !name.contains('/'))
    {
        let cluster = percent_encoding::percent_decode_str(cluster).decode_utf8_lossy();
        return Ok(Recognised {
            service: Service::Eks,
            action: "DescribeCluster".to_owned(),
            input: Input::Path(cluster.into_owned()),
        });
    }
    // Query parameters come in the body, or after the path of a GET.
    let form = if body.is_empty() {
        head.uri.query().unwrap_or_default().as_bytes()
    } else {
        body
    };
    let params = Params::parse(form).map_err(|error| (Service::Ec2, error))?;
    let service = match params.text("Version") {
        Some("2010-05-08") => Service::Iam,
        Some("2011-06-15") => Service::Sts,
        Some("2016-11-15") => Service::Ec2,
        _ => scope(head).unwrap_or(Service::Ec2),
    };
    let Some(action) = params.string("Action") else {
        let error = ApiError::new(
            "MissingAction",
            "The request must contain the parameter Action",
        );
        return Err((service, error));
    };
    Ok(Recognised {
        service,
        action,
        input: Input::Query(params),
    })
}

fn recognise_json(target: &str, body: &[u8]) -> Result<Recognised, (Service, ApiError)> {
    let (prefix, action) = target.split_once('.').unwrap_or((target, ""));
    let service = match prefix {
        "AmazonSSM" => Service::Ssm,
        "AmazonSQS" => Service::Sqs,
        "AWSPriceListService" => Service::Pricing,
        _ => {
            let error = ApiError::new(
                "UnknownOperationException",
                format!("{target} is not known"),
            );
            return Err((Service::Ssm, error));
        }
    };
    let body = if body.is_empty() { b"{}" } else { body };
    match serde_json::from_slice(body) {
        Ok(input) => Ok(Recognised {
            service,
            action: action.to_owned(),
            input: Input::Json(input),
        }),
        Err(error) => Err((
            service,
            ApiError::new("SerializationException", format!("malformed JSON: {error}")),
        )),
    }
}

/// The service in the credential scope: `Credential=KEY/DATE/REGION/SERVICE/aws4_request`.
fn scope(head: &http::request::Parts) -> Option<Service> {
    let header = head
        .headers
        .get(http::header::AUTHORIZATION)?
        .to_str()
        .ok()?;
    let credential = header.split("Credential=").nth(1)?;
    match credential.split('/').nth(3)? {
        "ec2" => Some(Service::Ec2),
        "iam" => Some(Service::Iam),
        "sts" => Some(Service::Sts),
        _ => None,
    }
}

/// Carries a call out. Gives the body of a successful answer.
async fn act(
    sim: &Sim,
    service: Service,
    action: &str,
    input: Input,
    request_id: &str,
) -> Result<String, ApiError> {
    match (service, input) {
        (Service::Ec2, Input::Query(params)) => {
            sim.admit(action)?;
            ec2::answer(&ec2::Call {
                sim,
                action,
                params: &params,
                request_id,
            })
        }
        (Service::Iam, Input::Query(params)) => iam::answer(sim, action, &params, request_id),
        (Service::Sts, Input::Query(_)) => json::sts(sim, action, request_id),
        (Service::Ssm, Input::Json(input)) => {
            json::ssm(sim, action, &input).map(|value| value.to_string())
        }
        (Service::Pricing, Input::Json(input)) => {
            json::pricing(sim, action, &input).map(|value| value.to_string())
        }
        (Service::Sqs, Input::Json(input)) => sqs::answer(sim, action, &input)
            .await
            .map(|value| value.to_string()),
        (Service::Eks, Input::Path(cluster)) => {
            json::eks(sim, &cluster).map(|value| value.to_string())
        }
        _ => Err(ApiError::new(
            "InvalidAction",
            "the request is in another service's form",
        )),
    }
}

fn content_type(service: Service) -> &'static str {
    match service {
        Service::Ec2 | Service::Iam | Service::Sts => "text/xml;charset=UTF-8",
        Service::Ssm | Service::Pricing => "application/x-amz-json-1.1",
        Service::Sqs => "application/x-amz-json-1.0",
        Service::Eks => "application/json",
    }
}

/// An error in a service's form.
fn refuse(service: Service, error: &ApiError, request_id: &str) -> Response<Full<Bytes>> {
    let body = match service {
        Service::Ec2 => ec2::error_document(error, request_id),
        Service::Iam | Service::Sts => iam::error_document(error, request_id),
        Service::Sqs => {
            json!({ "__type": format!("com.amazonaws.sqs#{}", error.code), "message": error.message })
                .to_string()
        }
        Service::Ssm | Service::Pricing => {
            json!({ "__type": error.code, "message": error.message, "Message": error.message })
                .to_string()
        }
        Service::Eks => json!({ "message": error.message }).to_string(),
    };
    let mut response = respond(error.status, content_type(service), body);
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response
                .headers_mut()
                .insert(HeaderName::from_static(name), value);
        }
    };
    put("x-amzn-requestid", request_id);
    match service {
        Service::Eks => put("x-amzn-errortype", &error.code),
        // Clients from before SQS spoke JSON know this code by its old name.
        Service::Sqs if error.code == "QueueDoesNotExist" => {
            put(
                "x-amzn-query-error",
                "AWS.SimpleQueueService.NonExistentQueue;Sender",
            );
        }
        Service::Sqs => put("x-amzn-query-error", &format!("{};Sender", error.code)),
        _ => {}
    }
    response
}

fn respond(status: u16, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
