# The public names: `__init__.py` reads this list for `__all__` and for its imports.
from typing import Any

from dagmaster import blocking as blocking
from dagmaster.application.submission import JobRequest as JobRequest
from dagmaster.authoring.python.futures import Future as Future
from dagmaster.authoring.python.graph_items import Dependency as Dependency
from dagmaster.authoring.python.graph_items import Group as Group
from dagmaster.authoring.python.graph_items import Task as Task
from dagmaster.authoring.python.graph_items import create_task as create_task
from dagmaster.authoring.python.node_functions import all_of as all_of
from dagmaster.authoring.python.node_functions import any_of as any_of
from dagmaster.authoring.python.node_functions import approval as approval
from dagmaster.authoring.python.node_functions import child_workflow as child_workflow
from dagmaster.authoring.python.node_functions import conditional as conditional
from dagmaster.authoring.python.node_functions import expression as expression
from dagmaster.authoring.python.node_functions import fan_in as fan_in
from dagmaster.authoring.python.node_functions import fan_out as fan_out
from dagmaster.authoring.python.node_functions import group as group
from dagmaster.authoring.python.node_functions import wait as wait
from dagmaster.authoring.python.running_task import create_result_collector as create_result_collector
from dagmaster.authoring.python.running_task import map_values as map_values
from dagmaster.authoring.python.tasks import task as task
from dagmaster.authoring.python.workflows import workflow as workflow
from dagmaster.bootstrap.workflow_run import run as run
from dagmaster.client.async_client import AsyncClient as AsyncClient
from dagmaster.client.blocking_client import Client as Client
from dagmaster.engine.status import JobStatus as JobStatus
from dagmaster.errors import InputsInvalid as InputsInvalid
from dagmaster.errors import PermanentError as PermanentError
from dagmaster.errors import WorkflowInvalid as WorkflowInvalid
from dagmaster.sdk.code_fingerprints import code_fingerprint as code_fingerprint
from dagmaster.sdk.entrypoints import entrypoint_of as entrypoint_of
from dagmaster.sdk.handler_context import HandlerContext as HandlerContext
from dagmaster.sdk.handler_registry import handler as handler
from dagmaster.sdk.handler_registry import registry_for as registry_for
from dagmaster.session.context import OrchContext as OrchContext
from dagmaster.session.current_context import create_job as create_job
from dagmaster.session.current_context import get_current_context as get_current_context
from dagmaster.session.job import Job as Job
from dagmaster.session.local_runs import run_job_test as run_job_test
from dagmaster.session.local_runs import run_job_test_async as run_job_test_async
from dagmaster.session.management import get_task as get_task

# Kept for programs that import them from here. New ones go to their package, such as dagmaster.session.
# isort: split
from dagmaster.authoring.compiler.compile import Compiled as Compiled
from dagmaster.authoring.compiler.compile import compile_definition as compile_definition
from dagmaster.authoring.compiler.compile import compile_file as compile_file
from dagmaster.authoring.compiler.compile import compile_text as compile_text
from dagmaster.authoring.python.graph_drawing import Drawing as Drawing
from dagmaster.authoring.python.graph_drawing import draw as draw
from dagmaster.authoring.python.graph_items import ResultCollector as ResultCollector
from dagmaster.authoring.python.node_functions import end as end
from dagmaster.authoring.python.node_functions import join as join
from dagmaster.authoring.python.node_functions import start as start
from dagmaster.authoring.python.running_task import RunningTask as RunningTask
from dagmaster.authoring.python.running_task import map as map  # noqa: A004 - the name that the source systems use
from dagmaster.authoring.python.tasks import handler_task as handler_task
from dagmaster.authoring.python.workflow_files import load_workflow as load_workflow
from dagmaster.authoring.python.workflows import Workflow as Workflow
from dagmaster.bootstrap.workflow_run import run_async as run_async
from dagmaster.engine.graph import Graph as Graph
from dagmaster.engine.retry import RetryPolicy as RetryPolicy
from dagmaster.errors import DagmasterError as DagmasterError
from dagmaster.errors import JobFailed as JobFailed
from dagmaster.errors import Problem as Problem
from dagmaster.ports.handler_reports import Checkpoint as Checkpoint
from dagmaster.ports.handler_reports import HandlerResult as HandlerResult
from dagmaster.ports.handler_reports import Progress as Progress
from dagmaster.ports.job_filter import JobFilter as JobFilter
from dagmaster.sdk.handler_mocks import mock_handler as mock_handler
from dagmaster.sdk.handler_registry import CheckpointableHandler as CheckpointableHandler
from dagmaster.sdk.handler_registry import Registry as Registry
from dagmaster.sdk.handler_registry import discover as discover
from dagmaster.sdk.handler_registry import register_handler as register_handler
from dagmaster.session import *  # noqa: F403 - the names of its stub
from dagmaster.settings.log_directory import get_logs_dir as get_logs_dir

def lazy_names(package: str) -> tuple[list[str], Any]: ...
