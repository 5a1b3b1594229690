"""How the Instance pages speak. The views are in jobs/pages, since every page shows jobs as well."""
