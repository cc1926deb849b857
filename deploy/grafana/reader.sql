-- The role with which Grafana asks Postgres. It passes on whatever SQL who can open a page sends it, so this role may read what the pages
-- show and nothing else. For psql; may be repeated. The password is in the environment: GRAFANA_PASSWORD.
\getenv password GRAFANA_PASSWORD
SELECT 'CREATE ROLE n4n_reader' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'n4n_reader') \gexec
ALTER ROLE n4n_reader LOGIN CONNECTION LIMIT 20 PASSWORD :'password';
ALTER ROLE n4n_reader SET default_transaction_read_only = on;
ALTER ROLE n4n_reader SET statement_timeout = '20s';
GRANT SELECT ON usage_by_day, sla_by_hour, traffic_by_minute TO n4n_reader;
GRANT SELECT (at, author, action, kind, name) ON audit TO n4n_reader;
GRANT SELECT (at, told) ON alert_notices TO n4n_reader;
