/* execution e ends by its own timeout: its hooks run, as they do when it fails */
(e.state = 'CANCELLING' and e.error ->> 'code' = 'EXECUTION_TIMEOUT')
