"""What a part may offer besides its port: a plain attribute or method of that name suffices."""

from __future__ import annotations

import pytest

from recreate.api import plugins, ports, registry
from recreate.api.errors import BadInput
from recreate.models.scripted import Scripted
from tests.toy import Toy


class Described(Toy):
    grader = "toy-2"
    description = "numbers to add"


def test_an_optional_ability_is_an_attribute_or_a_method_of_that_name() -> None:
    described = Described()
    offered = ports.extras(described)
    assert (offered.grader, offered.description) == ("toy-2", "numbers to add")
    assert (offered.packages(), offered.kind(described.tasks()[0])) == ([], "")
    assert list(offered.hidden(described.tasks()[0])) == [described.gold(described.tasks()[0])]
    assert isinstance(Scripted.of([{"text": ""}]), ports.ToolCalling)
    assert not isinstance(Scripted.of([{"text": ""}]), ports.Preparable)


@pytest.mark.parametrize("kind", sorted(set(registry.PORTS) & set(plugins.BUILT_IN)))
def test_every_built_in_class_has_the_methods_of_its_port(kind: str) -> None:
    for name in plugins.BUILT_IN[kind]:
        assert isinstance(registry.find(kind, name), type)
        assert not list(registry._methods(registry.PORTS[kind], registry.find(kind, name)))


def test_a_part_is_found_made_and_compared_with_its_port_in_one_step() -> None:
    assert (
        registry.open("domain", "tests.toy:Toy", workspace="left out: it takes none").name == "toy"
    )
    with pytest.raises(BadInput) as e:
        registry.open("domain", "tests.api.test_ports:Described.tasks")
    assert e.value.code in ("cannot-be-made", "misfit")
