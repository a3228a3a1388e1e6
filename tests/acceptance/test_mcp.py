"""Agents on a real cluster: the official MCP client, and the one of a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client as OfficialClient
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from corral.client.job_api.service import ClusterConnection
from corral.errors import BadRequest
from tests.acceptance.cluster import CORRAL, Cluster


@asynccontextmanager
async def official(cluster: Cluster, key: str) -> AsyncIterator[OfficialClient]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        url = f"{cluster.url}/mcp-server/mcp"
        transport = streamable_http_client(url, http_client=http)
        async with OfficialClient(transport) as client:
            yield client


def key_of(cluster: Cluster) -> str:
    return (cluster.home / "admin.key").read_text().strip()


async def test_the_official_client_lists_tools_and_runs_a_job(shared: Cluster) -> None:
    async with official(shared, key_of(shared)) as client:
        assert client.server_info is not None
        assert client.server_info.name == "corral"
        listed = await client.list_tools()
        names = {tool.name for tool in listed.tools}
        assert {"endpoints", "status", "heartbeat", "submit_job"} <= names
        told = await client.call_tool(
            "submit_job", {"schema_name": "echo", "payload": {"message": "hi"}}
        )
        assert not told.is_error
        assert told.structured_content is not None
        job_id = told.structured_content["job_id"]
        told = await client.call_tool("get_task", {"task_id": job_id, "wait": 30})
        assert told.structured_content is not None
        assert told.structured_content["result"] == {"echoed": "hi"}
        wrong = await client.call_tool("get_task", {"task_id": "nobody"})
        assert wrong.is_error


async def test_an_agent_starts_corral_mcp_and_submits_asks_why_and_reads_the_log(
    shared: Cluster,
) -> None:
    given = {**shared.environment, "CORRAL_MANAGER_URL": shared.url}
    server = StdioServerParameters(
        command=CORRAL[0], args=[*CORRAL[1:], "mcp"], env=given
    )
    async with OfficialClient(stdio_client(server)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        wanted = ("submit_task", "get_task", "explain_task", "get_task_logs")
        assert names >= {*wanted, "cluster_status"}

        async def use(tool: str, **arguments: Any) -> dict[str, Any]:
            told = await client.call_tool(tool, arguments)
            assert not told.is_error, told
            found: dict[str, Any] | None = told.structured_content
            assert found is not None
            return found

        made = await use("submit_task", task_type="echo", parameters={"message": "hi"})
        of_it = {"task_id": made["task_id"]}
        assert (await use("get_task", **of_it, wait=60))["result"] == {"echoed": "hi"}
        assert (await use("explain_task", **of_it))["headline"]
        assert (await use("get_task_logs", **of_it))["done"]
        assert (await use("cluster_status"))["total_workers"] >= 1
        wrong = await client.call_tool("get_task", {"task_id": "nobody"})
        assert wrong.is_error


async def test_the_official_client_is_refused_without_a_key(shared: Cluster) -> None:
    with pytest.raises(Exception, match=r"(?i)error|unauth|group"):
        async with official(shared, "corral_no_key"):
            raise AssertionError("never entered")


async def test_a_connection_has_a_client_of_its_own(shared: Cluster) -> None:
    connection = ClusterConnection(shared.url, shared.client)
    async with connection.mcp_client as mcp:
        tools = {tool.name: tool for tool in await mcp.list_tools()}
        assert tools["submit_job"].input_schema["required"] == ["schema_name"]
        told = await mcp.call_tool("status")
        assert told.structured_content == {"status": "Available"}
        wrong = await mcp.call_tool("get_task", {"task_id": "nobody"})
        assert wrong.is_error
        with pytest.raises(BadRequest, match="no tool"):
            await mcp.call_tool("no_such")
