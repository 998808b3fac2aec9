"""The public keys that verify callbacks, for everybody, as a server has them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.callbacks import KEYS_PATH, public_keys_view
from dagmaster.application.views.callbacks import PublicKeysView
from dagmaster.http.gateway.answers import answer
from dagmaster.http.gateway.routes import GatewayRoutes
from dagmaster.http.gateway.services import Services
from dagmaster.http.parameters import KeySet

routes = GatewayRoutes("callbacks")


@routes.get(KEYS_PATH, None, PublicKeysView, name="list_public_keys")
async def installation_keys(request: Request, services: Services) -> JSONResponse:
    """Return the public keys that verify callbacks of the installation's own jobs."""
    return answer(request, public_keys_view(await services.store.public_keys(None)))


@routes.get(KEYS_PATH + "/{key_set}", None, PublicKeysView, name="list_public_keys_of_set")
async def tenant_keys(request: Request, services: Services, key_set: KeySet) -> JSONResponse:
    """Return the public keys of a set, which a partner was given; none of one that does not exist."""
    return answer(request, public_keys_view(await services.store.public_keys(key_set)))
