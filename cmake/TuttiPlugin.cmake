# tutti_add_plugin(): builds one plugin. Works inside this tree and, through find_package(Tutti), outside it.
