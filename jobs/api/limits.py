"""API calls about the rules of limits. Operators change them; viewers may only read them."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs.api import examples
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.serializers.limits import (
    LimitAnswer,
    LimitFilter,
    LimitPage,
    LimitRequest,
    LimitWithKeysAnswer,
    find_pattern_problem,
    refuse_misplaced,
)
from jobs.models import LimitRule
from jobs.selectors.limits import rule_with_keys
from jobs.services import limit_rules
from liveness.api.access import NamespaceQuery, RoleCall
from liveness.models import Role
from liveness.services.action_events import format_actor


class LimitCall(RoleCall):
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}, "PUT": {Role.OPERATOR}, "DELETE": {Role.OPERATOR}}

    def initial(self, request: Request, *args: object, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "pattern" in kwargs and (problem := find_pattern_problem(kwargs["pattern"])):
            raise serializers.ValidationError({"pattern": [problem]})

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)


class LimitsView(LimitCall):
    """`GET /limits`."""

    @extend_schema(operation_id="v1_limits_list", parameters=[LimitFilter], responses=LimitPage)
    def get(self, request: Request) -> Response:
        """Return the rules of limits, latest first, in pages."""
        query = LimitFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(LimitPage, query.page(self.within_namespaces(LimitRule.objects.all()))))


class LimitView(LimitCall):
    """`GET`, `PUT` and `DELETE /limits/{pattern}`."""

    @extend_schema(parameters=[NamespaceQuery], responses=LimitWithKeysAnswer)
    def get(self, request: Request, pattern: str) -> Response:
        """Return the rule of a pattern, with the keys in use that it matches."""
        return Response(represent(LimitWithKeysAnswer, rule_with_keys(self.namespace, pattern)))

    @extend_schema(
        parameters=[NamespaceQuery], request=LimitRequest, responses={200: LimitAnswer, 201: LimitAnswer},
        examples=[examples.LIMIT, examples.FAIR_LIMIT],
    )  # fmt: skip
    def put(self, request: Request, pattern: str) -> Response:
        """Set the rule of a key, or of each key under a prefix (`customer:*`). It acts at once.

        The rules `action:NAME`, `tag:TAG` and `namespace:NAME` limit jobs that never named them. An action is named by
        its type or by what it runs: path, handler, task or image. Such a rule counts what runs already.

        A rule of the namespace `default` counts for the jobs of all namespaces, another one for those of its own.
        """
        body = validate_body(LimitRequest, request.data)
        refuse_misplaced(self.namespace, pattern, body)
        rule, is_new = limit_rules.set_limit(self.namespace, pattern, body, self.actor)
        return Response(represent(LimitAnswer, rule), status=201 if is_new else 200)

    @extend_schema(parameters=[NamespaceQuery, NoteRequest], responses={204: None})
    def delete(self, request: Request, pattern: str) -> Response:
        """Delete the rule of a pattern. Jobs that wait only for it may be claimed at once."""
        given = {name: text for name, text in request.query_params.items() if name != "namespace"}
        query: Any = NoteRequest(data=given)
        query.is_valid(raise_exception=True)
        limit_rules.delete_limit(self.namespace, pattern, self.actor, query.validated_data["note"])
        return Response(status=204)
