"""Security on the wire: TLS (`tls`), SASL (`sasl`), and the brokers' own links (`links`)."""
