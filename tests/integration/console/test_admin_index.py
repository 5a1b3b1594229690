"""The index of the Django admin, a project's too, leads to the Instance pages."""


def test_the_index_of_the_admin_leads_to_the_pages(staff):
    visitor = staff("view_server")
    index = visitor.get("/admin/").content.decode()
    assert 'href="/admin/liveness/instance/"' in index and "Instance pages" in index
    answer = visitor.get("/admin/liveness/instance/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/instance/")


def test_the_entry_is_hidden_from_people_who_may_view_nothing(client, django_user_model):
    client.force_login(django_user_model.objects.create_user("bob", is_staff=True))
    assert "Instance pages" not in client.get("/admin/").content.decode()


def test_the_row_of_the_instance_has_no_page_in_the_admin(admin_client):
    for path in ("add/", "1/change/", "1/delete/"):
        assert admin_client.get(f"/admin/liveness/instance/{path}").status_code == 404
