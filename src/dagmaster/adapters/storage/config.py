"""Open object stores as the environment configures them, for obstore and GDAL; redact secrets in errors."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from dagmaster.errors import BlobNameInvalid, BlobsUnavailable
from dagmaster.ports.storage import IN_PLACE, GdalPath

if TYPE_CHECKING:
    from dagmaster.ports.blob_uris import BlobUri

# Short retries bridge a transient error. An outage is reported within seconds: the worker retries the task
# later.
_RETRY: Final[Any] = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
# A large blob is one request, so obstore's limit of 30 s is lifted; `read_timeout` ends a stalled one.
_CLIENT: Final[Any] = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=30),
    "timeout": timedelta(days=1),
}
MIN_SECRET_LENGTH: Final = 4
"""A shorter value is likely to be part of ordinary text."""
_SECRET_NAMES: Final = re.compile(
    r"(KEY|SECRET|TOKEN|PASSWORD|SAS|CONNECTION_STRING|CREDENTIAL)", re.IGNORECASE
)
_SECRET_PARTS: Final = (
    (
        re.compile(
            r"([?&;](?:sig|se|sv|X-Amz-[A-Za-z-]+|X-Goog-[A-Za-z-]+|AccountKey)=)[^&;\s\"']*", re.IGNORECASE
        ),
        r"\1***",
    ),
    (re.compile(r"(://)[^/@\s]*@"), r"\1***@"),
    (re.compile(r"(Authorization:?\s*)\S.*", re.IGNORECASE), r"\1***"),
    # The response of S3 to a wrong signature contains the key id and the signed text.
    (
        re.compile(
            r"<(AWSAccessKeyId|StringToSign|SignatureProvided|CanonicalRequest)[^>]*>.*?</\1>", re.DOTALL
        ),
        r"<\1/>",
    ),
)


def open_store(scheme: str, container: str) -> Any:
    if scheme == "memory":
        return MemoryStore()
    client: Any = dict(_CLIENT)
    try:
        if scheme == "s3":
            client["allow_http"] = _s3_endpoint().startswith("http://")
            # S3, MinIO and others support a conditional copy in this form; the variable may name a header
            # instead.
            copy_condition = os.environ.get("AWS_COPY_IF_NOT_EXISTS", "multipart")
            return S3Store(
                container, copy_if_not_exists=copy_condition, client_options=client, retry_config=_RETRY
            )
        if scheme == "az":
            azure = _azure()
            client["allow_http"] = azure.get("endpoint", "").startswith("http://")
            return AzureStore(container, config=azure, client_options=client, retry_config=_RETRY)  # type: ignore[arg-type]
        return GCSStore(container, client_options=client, retry_config=_RETRY)
    except (BaseError, ValueError, OSError) as error:
        raise BlobsUnavailable(
            f"{scheme}://{container} cannot be opened: invalid configuration in the environment:"
            f" {redact_secrets(str(error))}"
        ) from None


def gdal_path(uri: BlobUri) -> GdalPath:
    """Return the path of GDAL's virtual file system for this scheme, and its configuration options."""
    match uri.scheme:
        case "file":
            return GdalPath(path=f"/{uri.name}")
        case "s3":
            return GdalPath(
                path=f"/vsis3/{uri.container}/{uri.name}", options={IN_PLACE: "YES", **_s3_options()}
            )
        case "az":
            return GdalPath(
                path=f"/vsiaz/{uri.container}/{uri.name}", options={IN_PLACE: "YES", **_azure_options()}
            )
        case "gs":
            return GdalPath(
                path=f"/vsigs/{uri.container}/{uri.name}", options={IN_PLACE: "YES", **_google_options()}
            )
    raise BlobNameInvalid(f"GDAL cannot read {uri} in place: fetch it first")


def redact_secrets(text: str) -> str:
    """Return the error message of a library on one line, without secrets and signatures."""
    for name, value in os.environ.items():
        if len(value) >= MIN_SECRET_LENGTH and _SECRET_NAMES.search(name):
            text = text.replace(value, "***")
    for pattern, replacement in _SECRET_PARTS:
        text = pattern.sub(replacement, text)
    # Rust repeats the message after "Debug source".
    return re.sub(r"\s+", " ", text.partition("Debug source")[0]).strip()[:600]


# ── S3 ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _s3_endpoint() -> str:
    return _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _s3_options() -> dict[str, str]:
    """Return GDAL's options that differ from obstore's; both read keys, token and region from one place."""
    # By default obstore puts the bucket into the path, and GDAL into the host name.
    virtual = _is_true(os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", ""))
    options = {"AWS_VIRTUAL_HOSTING": "TRUE" if virtual else "FALSE"}
    endpoint = _s3_endpoint()
    if endpoint:
        scheme, _, host = endpoint.partition("://")
        options |= {"AWS_S3_ENDPOINT": host.rstrip("/"), "AWS_HTTPS": "NO" if scheme == "http" else "YES"}
    if _is_true(os.environ.get("AWS_SKIP_SIGNATURE", "")):
        options["AWS_NO_SIGN_REQUEST"] = "YES"
    return options


# ── Azure ───────────────────────────────────────────────────────────────────────────────────────────────────


def _azure() -> dict[str, str]:
    """Parse the connection string, the one variable that obstore does not read itself."""
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    settings = {
        name.strip().lower(): value.strip()
        for name, _, value in (part.partition("=") for part in text.split(";"))
    }
    account = settings.get("accountname", "")
    endpoint = settings.get("blobendpoint", "")
    if account and not endpoint and "endpointsuffix" in settings:
        protocol = settings.get("defaultendpointsprotocol", "https")
        endpoint = f"{protocol}://{account}.blob.{settings['endpointsuffix']}"
    options = {
        "account_name": account,
        "account_key": settings.get("accountkey", ""),
        "sas_key": settings.get("sharedaccesssignature", ""),
        "endpoint": endpoint.rstrip("/"),
    }
    return {name: value for name, value in options.items() if value}


def _azure_options() -> dict[str, str]:
    if os.environ.get("AZURE_STORAGE_CONNECTION_STRING"):
        return {}
    account = _first("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    key = _first("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
    endpoint = _first("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    if endpoint and key:
        scheme = endpoint.partition("://")[0]
        parts = (
            f"DefaultEndpointsProtocol={scheme}",
            f"AccountName={account}",
            f"AccountKey={key}",
            f"BlobEndpoint={endpoint}",
        )
        return {"AZURE_STORAGE_CONNECTION_STRING": ";".join(parts)}
    options = {
        "AZURE_STORAGE_ACCOUNT": account,
        "AZURE_STORAGE_ACCESS_KEY": key,
        "AZURE_STORAGE_SAS_TOKEN": _first("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN").lstrip("?"),
        "AZURE_STORAGE_ACCESS_TOKEN": _first("AZURE_STORAGE_TOKEN"),
        "AZURE_NO_SIGN_REQUEST": "YES" if _is_true(os.environ.get("AZURE_SKIP_SIGNATURE", "")) else "",
    }
    return {name: value for name, value in options.items() if value}


# ── Google ──────────────────────────────────────────────────────────────────────────────────────────────────


def _google_options() -> dict[str, str]:
    account = _first("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
    options = {"GOOGLE_APPLICATION_CREDENTIALS": account} if account else {}
    if _is_true(os.environ.get("GOOGLE_SKIP_SIGNATURE", "")):
        options["GS_NO_SIGN_REQUEST"] = "YES"
    return options


def _first(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
