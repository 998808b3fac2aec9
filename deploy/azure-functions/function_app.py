"""The gateway as an Azure Functions app, the same as `dagmaster gateway`: docs/howto/gateway.md."""

import os

import azure.functions as func

from dagmaster.bootstrap.gateway import function_app_gateway
from dagmaster.http.gateway.function_host import FunctionHost

# The platform names the host under which it serves the app.
gateway = function_app_gateway(hosts=[name for name in [os.environ.get("WEBSITE_HOSTNAME")] if name])

# Callers are checked by their keys and tokens, and not by the platform's function keys.
app = func.AsgiFunctionApp(app=FunctionHost(gateway), http_auth_level=func.AuthLevel.ANONYMOUS)
