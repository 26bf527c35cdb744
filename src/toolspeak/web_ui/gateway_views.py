"""What the API says of a gateway, which another part of this process watches."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from toolspeak.web_ui.api_errors import ApiFailure
from toolspeak.web_ui.gateway_values import GatewayStatus, GatewayWatch
from toolspeak.web_ui.run_views import ApiCall


async def show_gateway(call: ApiCall) -> GatewayStatus:
    return await _watch(call).status()


async def gateway_events(call: ApiCall) -> AsyncGenerator[bytes]:
    return _watch(call).events()


def _watch(call: ApiCall) -> GatewayWatch:
    if call.caller.sees is not None:
        raise ApiFailure(403, "principal", "this key sees the runs of one principal alone, and not the gateway")
    if call.services.gateway is None:
        raise ApiFailure(404, "no_gateway", "this server shows no gateway: `toolspeak serve --ui` does")
    return call.services.gateway
